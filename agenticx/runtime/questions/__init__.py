"""Confirmation questions: their text, and the digest that question and answer share."""
