"""Looking inside a trained model: each file is one view, `minitf inspect NAME` shows it; `capture` is what they look through."""
