"""The controllers: one package for each kind that the operator reconciles."""
