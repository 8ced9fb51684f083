"""What cfo is compared with, and what else runs in a process of its own."""
