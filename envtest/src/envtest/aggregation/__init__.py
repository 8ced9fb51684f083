"""Other API servers, which APIServices add to this one: whether they are available, and requests for them."""
