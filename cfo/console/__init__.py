"""What people see: commands, pages and terminal views."""
