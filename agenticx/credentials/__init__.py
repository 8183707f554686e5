"""Keys of providers, the token of the server, and the key that encrypts what workers share."""
