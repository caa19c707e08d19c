"""The learner: a short-lived child that trains the head of the model on what people labelled for this device."""
