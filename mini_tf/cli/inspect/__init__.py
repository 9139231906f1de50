"""`minitf inspect`: the views into a trained model, one file each."""
