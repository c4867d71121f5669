"""A backend of keyring's, of a kind that a test machine has: passwords in memory, or broken."""

from keyring.backend import KeyringBackend


class Ring(KeyringBackend):
    """Has what it is given; the service ``broken`` can't be read."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.passwords = {}

    def get_password(self, service, username):
        if service == "broken":
            raise OSError("locked: sk-secret")
        return self.passwords.get((service, username))

    def set_password(self, service, username, password):
        self.passwords[service, username] = password

    def delete_password(self, service, username):
        del self.passwords[service, username]
