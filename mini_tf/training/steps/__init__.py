"""Forward and backward passes and updates of the steps of training, eagerly or captured."""
