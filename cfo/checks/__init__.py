"""What ``cfo doctor`` checks of each kind: functions that a kind lists, and the findings that they return."""
