"""What several test modules use: environments, stand-ins, recordings. Nothing here is a test."""
