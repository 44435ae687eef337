"""The words of the minimal pairs: forms of a word are given as (singular, plural)."""

from __future__ import annotations

PEOPLE = (
    ("farmer", "farmers"),
    ("teacher", "teachers"),
    ("nurse", "nurses"),
    ("sailor", "sailors"),
    ("baker", "bakers"),
    ("lawyer", "lawyers"),
    ("student", "students"),
    ("doctor", "doctors"),
    ("painter", "painters"),
    ("driver", "drivers"),
    ("child", "children"),
    ("neighbour", "neighbours"),
    ("guest", "guests"),
    ("soldier", "soldiers"),
    ("woman", "women"),
    ("singer", "singers"),
)
FEMALE = ("mother", "sister", "aunt", "daughter", "grandmother", "girl", "woman", "queen", "wife", "niece", "princess")
MALE = ("father", "brother", "uncle", "son", "grandfather", "boy", "man", "king", "husband", "nephew", "prince")
WOMEN = ("Anna", "Mary", "Susan", "Emily", "Sarah", "Laura", "Jessica", "Margaret", "Helen", "Rachel")
MEN = ("John", "Peter", "Robert", "Thomas", "David", "George", "Michael", "Henry", "Daniel", "William")
VERBS = (
    ("sings", "sing"),
    ("works", "work"),
    ("sleeps", "sleep"),
    ("walks", "walk"),
    ("waits", "wait"),
    ("eats", "eat"),
    ("plays", "play"),
    ("talks", "talk"),
    ("sits", "sit"),
    ("reads", "read"),
    ("dances", "dance"),
    ("rests", "rest"),
)
PLACES = (
    "in the garden",
    "near the river",
    "behind the house",
    "at the station",
    "in the kitchen",
    "under the bridge",
    "on the beach",
    "in front of the church",
)
HABITS = ("every morning", "on Sundays", "after dinner", "in the evening", "before lunch")  # fit the present
TIMES = ("every morning", "on Sundays", "after dinner", "last week", "in the evening", "before lunch")
OBJECTS = (
    ("basket", "baskets"),
    ("chair", "chairs"),
    ("bottle", "bottles"),
    ("lamp", "lamps"),
    ("window", "windows"),
    ("box", "boxes"),
    ("clock", "clocks"),
    ("cup", "cups"),
    ("knife", "knives"),
    ("painting", "paintings"),
    ("ladder", "ladders"),
    ("mirror", "mirrors"),
)
NOUNS = ("village", "family", "office", "class", "team", "town", "building", "room")
RELATIONS = (
    (("key", "keys"), "to", ("cabinet", "cabinets")),
    (("picture", "pictures"), "of", ("castle", "castles")),
    (("road", "roads"), "behind", ("factory", "factories")),
    (("letter", "letters"), "from", ("lawyer", "lawyers")),
    (("door", "doors"), "beside", ("window", "windows")),
    (("song", "songs"), "about", ("sailor", "sailors")),
    (("tree", "trees"), "near", ("house", "houses")),
    (("story", "stories"), "about", ("king", "kings")),
    (("shop", "shops"), "across from", ("hotel", "hotels")),
    (("book", "books"), "about", ("bird", "birds")),
)
REFLEXIVE_DEEDS = (
    "hurt {} with a knife",
    "blamed {} for the accident",
    "introduced {} to the guests",
    "saw {} in the mirror",
    "taught {} to swim",
    "described {} in a letter",
    "defended {} with a stick",
    "asked {} the same question",
    "locked {} in the bathroom",
    "found {} in a strange place",
    "talked to {} in the dark",
    "was proud of {}",
    "made {} a cup of tea",
    "kept {} warm with a blanket",
)
IRREGULAR = (  # past tense, participle, what it is done to
    ("wrote", "written", "letter"),
    ("broke", "broken", "window"),
    ("stole", "stolen", "bicycle"),
    ("drove", "driven", "truck"),
    ("ate", "eaten", "cake"),
    ("took", "taken", "photograph"),
    ("chose", "chosen", "song"),
    ("hid", "hidden", "treasure"),
    ("drew", "drawn", "map"),
    ("threw", "thrown", "ball"),
    ("gave", "given", "answer"),
    ("wore", "worn", "uniform"),
    ("forgot", "forgotten", "name"),
    ("tore", "torn", "coat"),
)
EXPERIENCES = (
    "seen the sea",
    "been to Paris",
    "driven a tractor",
    "met the president",
    "tasted snow",
    "climbed that mountain",
    "read the whole book",
    "won a prize",
    "spoken to the queen",
    "been late for work",
    "slept in a tent",
    "ridden a camel",
)
TRANSITIVITY = (  # a verb that takes an object, one that cannot
    ("broke", "vanished"),
    ("found", "arrived"),
    ("cleaned", "smiled"),
    ("carried", "existed"),
    ("painted", "sneezed"),
    ("dropped", "fell"),
    ("noticed", "appeared"),
    ("brought", "came"),
    ("raised", "rose"),
    ("bought", "laughed"),
)
