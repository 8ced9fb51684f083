"""What is asked before an object is stored: a module for each kind that has admission webhooks."""
