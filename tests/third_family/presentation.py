"""What the family says of itself: the three methods that every family writes, and a few words."""

from wideangle.presentation.family import Presentation
from wideangle.presentation.records import Option


class GroupPresentation(Presentation):
    title = "groups of rows"
    noun = "group"
    help = "Cut rows into groups."
    options = (Option("--groups", "n_groups", int, "How many.", "3", least=2),)
    words = {"energy": "energy of the groups"}  # noqa: RUF012
    counted = "n_groups"

    def vectors(self):
        return self.model.centres_

    def activations(self, X):
        return self.model.transform(X)

    def facts(self):
        return [("groups", str(len(self.model.centres_)))]
