"""What a model knows of gold labels: attention heads as parsers, and hidden states of homonyms.

Every figure stands beside two controls: the same model with random weights, and the same labels shuffled.
"""
