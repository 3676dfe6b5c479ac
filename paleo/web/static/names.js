/* Names in charts: how wide they are, and how they are shortened where there is no room. */
"use strict";

(function () {
  const canvas = document.createElement("canvas").getContext("2d");
  const ELLIPSIS = "…";

  /** Widths of texts in one font, in pixels. */
  class Ruler {
    /** @param {string} font as in a style sheet */
    constructor(font) {
      this.font = font;
      this.widths = new Map();
    }

    /** @param {string} text */
    width(text) {
      if (!this.widths.has(text)) {
        canvas.font = this.font;
        this.widths.set(text, canvas.measureText(text).width);
      }
      return this.widths.get(text);
    }

    /** Return how many letters have room from one end of a text: from its start, or its end. */
    _fit(letters, room, step) {
      let count = 0;
      let left = room;
      for (let i = step > 0 ? 0 : letters.length - 1; i >= 0 && i < letters.length; i += step) {
        left -= this.width(letters[i]);
        if (left < 0) break;
        count += 1;
      }
      return count;
    }

    /** Return ways to cut letters out of a name, the best first: as [letters before, after]. */
    cuts(name, room) {
      const letters = [...name];
      const free = room - this.width(ELLIPSIS);
      const found = [];
      for (let front = 0; front < letters.length; front += 1) {
        const rest = free - letters.slice(0, front).reduce((sum, each) => sum + this.width(each), 0);
        if (rest < 0) break;
        found.push([front, this._fit(letters.slice(front), rest, -1)]);
      }
      // Ends tell more than beginnings: a third of what is left is of the beginning.
      const wanted = found.length / 3;
      return found.sort((a, b) => Math.abs(a[0] - wanted) - Math.abs(b[0] - wanted));
    }
  }

  /**
   * Return what to write for each of these names: as a whole where it has room, or without a part
   * in the middle such that no other name can be taken for it, if there is such a part.
   * @param {string[]} names
   * @param {number} room in pixels
   * @param {Ruler} ruler
   * @returns {Map<string, string>}
   */
  function shorten(names, room, ruler) {
    const shown = new Map();
    for (const name of names) {
      if (ruler.width(name) <= room) {
        shown.set(name, name);
        continue;
      }
      const letters = [...name];
      const ways = ruler.cuts(name, room).map(([front, back]) => [
        letters.slice(0, front).join(""),
        letters.slice(letters.length - back).join(""),
      ]);
      const alone = ([start, end]) =>
        names.every((other) => other === name || !(other.startsWith(start) && other.endsWith(end)));
      const [start, end] = ways.find(alone) || ways[0] || ["", ""];
      shown.set(name, start + ELLIPSIS + end);
    }
    return shown;
  }

  Paleo.Ruler = Ruler;
  Paleo.shorten = shorten;
})();
