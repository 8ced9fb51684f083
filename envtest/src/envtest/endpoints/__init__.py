"""Between HTTP and objects: requests, content negotiation, decoding, options, lists and responses."""
