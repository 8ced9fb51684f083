"""The APIs that cfo owns, as typed models with their CustomResourceDefinitions, and facts about those it reads."""
