from __future__ import annotations

import random

import pytest

from interlingua.data.encyclopedia import languages, topics
from interlingua.text.sentences import split_sentences

# "|" marks where the text must be split; nothing else may be.
MARKED = [
    ("en", "Dr. Smith read J. R. R. Tolkien, e.g. in Oxford.| It cost 3.14 dollars.| He left...| Then it rained."),
    ("en", "“Really?” he asked.| (She said “No!” to it.)| It ended.[1][2]| See No. 5 and Fig. 2 of the U.S. Army."),
    ("en", "We met at 5 p.m.| The end came at 3.5.| Then ... and then?!| Yes."),
    ("en", 'He said "go."| "Why?" she asked.| "So."|'),
    ("en", "1. First thing.| 2. Second thing."),
    ("en", "It stops here.| It ends. *"),
    ("en", "It stops here. .| And goes on."),
    ("de", "Am 21. November kam z. B. Ludwig XIV. nach Paris, z.B. per Bahn.| Das war 1990.| Dann „Nein.“| Er ging."),
    ("de", "Cäsar starb 44 v. Chr. Antonius war ca. 39 Jahre alt.| Nr. 7 fehlt."),
    ("fi", "Hän syntyi 21. marraskuuta 1990.| Esim. Helsingissä asuu n. 600 000 ihmistä.| Kuningas Kaarle XII. Vaasa."),
    ("ru", "Он жил, т.е. работал, в 1990 г.| Потом А. С. Пушкин, т. е. поэт, уехал.| См. рис. 5.| Да…| Нет."),
    ("ru", "Это было в 490 г. до н. э.| Потом всё изменилось."),
    ("uk", "Це вул. Шевченка, 5.| Він жив у м. Київ."),
    ("fr", "« Oui. »| Il part.| « Non ! » dit-il.| M. Dupont vint.| « Prêts ? », demanda-t-elle."),
    ("es", "¿Qué?| ¡No!| El Sr. Ruiz vive en EE. UU. desde 1990."),
    ("tr", "II. Mehmed geldi.| 19. yüzyıl bitti.| 2. Dünya Savaşı başladı."),
    ("el", "Τι είναι;| Είναι π.χ. ο κ. Παπάς.| Ναι;"),
    ("en", "He came; She left."),
    ("ar", "هل هذا صحيح؟|نعم.| جاء د. أحمد."),
    ("ar", "هل أنت هنا؟ ، قال الرجل."),
    ("fa", "آیا درست است؟| بله."),
    ("ur", "یہ ہے۔|وہ ہے؟| ہاں۔"),
    ("he", "פרופ. לוי הלך?| כן.| ד. כהן בא."),
    ("hi", "यह है।|वह है॥| डॉ. सिंह यू.एस. में हैं।| ठीक?"),
    ("bn", "এটি নদী।| ডা. রায় এলেন।"),
    ("te", "డా. రావు వచ్చారు.| ఎస్. పి. బాలు పాడారు."),
    ("ta", "டாக்டர். குமார் வந்தார்.| அவர் பேசினார்."),
    ("ja", "「行く。」と言った。|「帰る。」|彼は帰った。|本当？！|そう!|ない。| 次。"),
    ("zh", "他说：“好。”|我走了。|真的？！|不。|“我来。”|他说，圆周率是３．１４。"),
    ("zh", '他说："好。"|我走了。|"来吧。"|'),
    ("ko", "그는 갔다.| “좋다.”라고 말했다.| 끝."),
    ("am", "ይህ ነው።| ያ ነው፡፡|ጥሩ፧| አዎ።"),
    ("hy", "Սա է։| Նա գնաց։|Այո։"),
    ("my", "ဒါပါ။| ဟုတ်ကဲ့၊ အိုကေ။"),
    ("km", "នេះ។| នោះ។"),
    ("ka", "ეს არის.| ის არის."),
    ("bo", "འདི་ཡིན།| དེ་ཡིན།"),
    ("sat", "ᱱᱚᱣᱟ ᱠᱟᱱᱟ᱾| ᱚᱱᱟ ᱠᱟᱱᱟ᱾"),
    ("sw", "Bw. Juma alifika.| Aliondoka saa 11.30 jioni."),
    ("vi", "TP. Hồ Chí Minh rất đông.| TS. Lan sống ở đó."),
]


@pytest.mark.parametrize(("lang", "marked"), MARKED)
def test_marks_of_every_script(lang: str, marked: str) -> None:
    expected = [sentence.strip() for sentence in marked.split("|") if sentence]
    assert split_sentences(marked.replace("|", ""), lang) == expected


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not() -> None:
    assert split_sentences("A title\n\nIt goes\non. On.\n \nLast", "en") == ["A title", "It goes\non.", "On.", "Last"]
    assert split_sentences("ชื่อเรื่อง\n\nเนื้อหา", "th") == ["ชื่อเรื่อง", "เนื้อหา"]


def test_nothing_gives_no_sentence_and_marks_alone_are_kept() -> None:
    assert split_sentences("", "en") == split_sentences(" \n\n ", "th") == []
    assert split_sentences("...", "en") == ["..."]
    assert split_sentences("***\n\nA b.", "en") == ["***", "A b."]


def test_language_tags_and_unknown_languages() -> None:
    assert split_sentences("Es kam am 21. November. Ja.", "de-AT") == ["Es kam am 21. November.", "Ja."]
    assert split_sentences("Uno. Duo. Mr. X!", "qqq") == ["Uno.", "Duo.", "Mr. X!"]


def test_thai_spaces() -> None:
    # A cue ("ต่อมา", later) ends a sentence, a clause that begins with "ซึ่ง" (which) does not.
    first, second = "เจมส์วัตต์คิดค้นเครื่องจักรไอน้ำ ซึ่งใช้ในเหมืองถ่านหิน", "ต่อมาเครื่องจักรนี้แพร่หลายไปทั่วยุโรป"
    assert split_sentences(f"{first} {second}", "th") == [first, second]
    for kept in (
        "เขาเกิดเมื่อวันที่ 3 ธันวาคม พ.ศ. 2533 ที่เมืองเชียงใหม่ในภาคเหนือของประเทศไทย",
        "เขาทำงานกับบริษัทขนาดใหญ่แห่งหนึ่งในกรุงเทพมหานครชื่อว่าบริษัท Raffles International ตามที่กล่าว",
        "ผู้โดยสารและลูกเรือทั้งหมดได้รับความช่วยเหลือจากเรือลำอื่น ๆ การช่วยเหลือ",
        "ประเทศต่างๆในภูมิภาคเอเชียตะวันออกเฉียงใต้ (เขาเรียกว่ากลุ่มอาเซียน การรวมตัว เขากล่าว)",
        "ก) ประเทศต่างๆในภูมิภาคเอเชียตะวันออกเฉียงใต้ (เขาเรียกว่ากลุ่มอาเซียนรวมตัวกัน เรากล่าวว่าประเทศไทย)",  # a list
    ):
        assert split_sentences(kept, "th") == [kept]
    open_bracket = "(" + " ".join(["การทดลองนี้เป็นการทดลองที่ดีมาก"] * 20)
    assert len(split_sentences(open_bracket, "th")) > 1


def test_no_character_is_lost() -> None:
    draw = random.Random(0)
    parts = [
        "Dr",
        "z",
        "B",
        "21",
        "a",
        "Nein",
        "湖",
        "です",
        "หมา",
        "การ",
        "है",
        "는",
        "د",
        "г",
        "J.-C",
        *".,;:!?…。！？।؟۔።።፡፡։．",
        *"\"'“”„«»()[]「」『』—–",
        "[1]",
        *" \n\t\u00a0\u2029",
        "  ",
        "\n\n",
    ]
    for _ in range(1500):
        text = "".join(draw.choices(parts, k=draw.randint(0, 40)))
        for lang in ("en", "de", "th", "ja", "ar", "qqq"):
            sentences = split_sentences(text, lang)
            assert all(sentence and sentence == sentence.strip() for sentence in sentences)
            assert "".join("".join(sentences).split()) == "".join(text.split())


@pytest.mark.parametrize("lang", languages())
def test_articles_joined_and_split_again(lang: str) -> None:
    found = right = there = same = 0
    for topic in topics():
        sentences = split_sentences(topic.text(lang), lang)
        ours, theirs = _ends(sentences), _ends(topic.passage[lang])
        found, right, there = found + len(ours), right + len(ours & theirs), there + len(theirs)
        same += sentences == list(topic.passage[lang])
    if lang == "th":
        assert 2 * right / (found + there) >= 0.5
    else:
        assert same / len(topics()) >= 0.98


def _ends(sentences: list[str] | tuple[str, ...]) -> set[int]:
    """Where the sentences but the last end, in characters without white space."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return {sum(lengths[:number]) for number in range(1, len(lengths))}
