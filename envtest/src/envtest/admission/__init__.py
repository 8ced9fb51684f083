"""What may change or refuse a write before it is stored: the chain, its own plugins, webhooks and policies."""
