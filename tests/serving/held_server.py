"""A server for tests that stop it: a search prints "in" and returns when a line comes on standard input."""

import sys
from types import SimpleNamespace

from interlingua.data.records import Passage
from interlingua.serving.app import bind, create_app, run
from interlingua.serving.service import ServeSettings


class HeldIndex:
    path = ""

    def __init__(self):
        self.languages = {"en": 1}

    def search_many(self, texts, **options):
        if texts != ["interlingua"]:  # the server's own first question
            print("in", flush=True)
            sys.stdin.readline()
        return [[SimpleNamespace(passage=Passage("a", "text", lang="en"), score=1.0, parts={})] for _ in texts]

    def __len__(self):
        return 1

    def refresh(self):
        pass

    def info(self):
        return SimpleNamespace(model="held")


if __name__ == "__main__":
    with bind("127.0.0.1", 0) as listener:
        run(create_app(HeldIndex(), ServeSettings()), listener, 30.0)
