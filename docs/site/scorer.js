// Order of the search results. Sphinx takes the best of the words alone, and then the alphabet: here every word counts,
// a word of a heading more than one of the text, and pages that tell how before those that tell why.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 12, 1: 4, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 1,
  score: ([name, title, anchor, , score]) => {
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const words = query.toLowerCase().split(/\W+/).filter((word) => word);
    const id = Search._index.docnames.indexOf(name);
    const isIn = (terms, word) => [terms[word]].flat().includes(id);
    const counts = words.map((word) => {
      const stem = new Stemmer().stemWord(word);
      const ofPage = Search._index.titles[id].toLowerCase().split(/\W+/).map((w) => new Stemmer().stemWord(w));
      return (
        (ofPage.includes(stem) ? 9 : 0) +
        (title.toLowerCase().includes(word) ? 6 : 0) +
        (isIn(Search._index.titleterms, stem) ? 4 : 0)
      );
    });
    const shelf = [
      [/^project\//, -9],
      [/^notes\//, -6],
      [/^start\/from_/, -5],
      [/^reference\/api\//, -2],
      [/^reference\/glossary/, 5],
      [/^(start|howto)\//, 4],
    ].find(([pattern]) => pattern.test(name));
    return score + counts.reduce((a, b) => a + b, 0) + (shelf ? shelf[1] : 0);
  },
};
