"""Inputs and outputs of trained models."""
