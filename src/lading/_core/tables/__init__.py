"""Datasets as tables, as other programs read them: Arrow streams, dataframes, SQL."""
