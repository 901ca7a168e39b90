"""What a user types and sees: the plugin in pytest projects of its own."""
