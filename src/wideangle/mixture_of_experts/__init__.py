"""Mixture of experts: a softmax gate picks one of several experts for each row."""
