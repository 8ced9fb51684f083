"""What every part of the API server uses: objects, errors, rules of names, selectors of labels, users and the clock."""
