"""The manager: start and stop, leader election, Events, health, metrics and debug servers."""
