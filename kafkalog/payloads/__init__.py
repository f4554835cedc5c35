"""What keys and values of internal topics mean, as Kafka prints them."""
