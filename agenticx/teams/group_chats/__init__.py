"""Group chats: teams whose participants speak one after the other."""
