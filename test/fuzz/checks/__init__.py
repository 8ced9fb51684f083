"""What the fuzz tests check of each input; test_properties shows that each check can fail."""
