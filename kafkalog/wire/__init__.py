"""Kafka's protocol: a server for what files hold, a producer that replays them."""
