"""The verbs that measure: `evaluate`, `compare`, `report`, `reproduce`."""
