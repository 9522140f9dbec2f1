"""Statistics, info and the facts behind them."""
