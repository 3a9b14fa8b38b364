"""Token ids are found once, kept as long as there is room, and are what the encoder would say."""

from interlingua.training.encoding import TokenCache


class Counting:
    def __init__(self, encoder):
        self.encoder, self.asked = encoder, []

    def tokenize(self, texts, role):
        self.asked += texts
        return self.encoder.tokenize(texts, role)


def test_each_text_is_tokenised_once_for_each_encoder_and_role(tiny_static, sentences):
    first, second = Counting(tiny_static()), Counting(tiny_static(seed=1))
    cache = TokenCache()
    texts = [*sentences, ("title", sentences[0]), sentences[0], ""]
    for role in ("query", "passage"):
        for _ in range(2):
            assert cache.tokenize(first, texts, role) == first.encoder.tokenize(texts, role)
    assert len(first.asked) == 2 * len(set(texts))
    cache.tokenize(second, texts[:2], "query")
    assert second.asked == texts[:2]


def test_without_room_nothing_is_kept(tiny_static, sentences):
    encoder = Counting(tiny_static())
    cache = TokenCache(most=len(encoder.encoder.tokenize([sentences[0]])[0]))
    for _ in range(2):
        assert cache.tokenize(encoder, sentences, "query") == encoder.encoder.tokenize(sentences, "query")
    assert encoder.asked == [*sentences, *sentences[1:]]
