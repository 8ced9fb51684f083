"""API priority and fairness: the classification of requests, the status of its objects, and its metrics."""
