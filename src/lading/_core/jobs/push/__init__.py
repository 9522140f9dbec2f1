"""Push a dataset to Hugging Face's Hub."""
