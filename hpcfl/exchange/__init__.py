"""What server and clients exchange: payloads of declared arrays, and their messages."""
