"""What ``cfo doctor`` checks of each kind: functions that a feature lists, and the findings that they return."""
