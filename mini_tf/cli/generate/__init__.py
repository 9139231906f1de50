"""`minitf generate` and `minitf chat`: text out of a trained model, by prompts, by lines or in a loop."""
