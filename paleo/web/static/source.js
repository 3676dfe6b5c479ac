/* Where answers come from: the server, or the data embedded in a report. */
"use strict";

(function () {
  /** An answer that says what is wrong, in lines. */
  class Refusal extends Error {
    /** @param {string[]} lines */
    constructor(lines) {
      super(lines.join("\n"));
      this.lines = lines;
    }
  }

  const NO_ANSWER = "The server does not answer. Is it still running?";

  async function answered(request) {
    let response;
    try {
      response = await request;
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal([NO_ANSWER]);
    }
    if (response.ok) return response;
    let lines = [`The server answers ${response.status} ${response.statusText}.`];
    try {
      const { errors } = await response.json();
      if (Array.isArray(errors) && errors.length > 0) lines = errors.map(String);
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
    throw new Refusal(lines);
  }

  /** What only answers of one kind depend on, by the beginning of its key. */
  const ALONE = { compare: "other_", infer: "infer_" };

  /** Answers of the server that this page came from. */
  class Server {
    /**
     * @param {Object<string, string>} defaults
     * @param {string[]} names of exports, such as "simulate.csv"
     */
    constructor(defaults, names) {
      this.defaults = defaults;
      this.names = names;
    }

    _request(path, state, signal) {
      const query = new URLSearchParams(Paleo.address.query(state.values, this.defaults, ""));
      for (const [kind, start] of Object.entries(ALONE)) {
        if (path === kind) continue;
        [...query.keys()].filter((key) => key.startsWith(start)).forEach((key) => query.delete(key));
      }
      if (state.net === null) return fetch(`api/${path}${query.size ? `?${query}` : ""}`, { signal });
      query.delete("net");
      const settings = Object.fromEntries(query);
      return fetch(`api/${path}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ settings, net: state.net }),
        signal,
      });
    }

    /** Return the answer of one kind: "scaling", "layers" or "memory". */
    async ask(kind, state, signal) {
      const response = await answered(this._request(kind, state, signal));
      try {
        return await response.json();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Refusal([NO_ANSWER]);
      }
    }

    /** Return the text of an export such as "simulate.csv". */
    async export(name, state) {
      return (await answered(this._request(name, state))).text();
    }

    exports() {
      return this.names;
    }

    /**
     * Return the net that the server reads from a file.
     * @param {File} file
     * @param {string} options those of a command that reads such a file
     */
    async upload(file, options) {
      const query = new URLSearchParams({ file: file.name, ...(options && { options }) });
      const path = `api/net?${query}`;
      const headers = { "Content-Type": "application/octet-stream" };
      return (await answered(fetch(path, { method: "POST", headers, body: file }))).json();
    }
  }

  /** Answers embedded in a report; app.js has the form. */
  class Report {
    constructor(report) {
      this.report = report;
    }

    _find(kind, values, table) {
      const found = (table || {})[kind];
      const byScheme = kind === "scaling" || kind.startsWith("simulate");
      return found === undefined ? undefined : found[byScheme ? values.scheme : values.workers];
    }

    _view(values) {
      const keys = [values.net, values.cluster || values.device, values.batch_size, values.scaling];
      return keys.reduce((found, key) => (found || {})[key], this.report.views);
    }

    async ask(kind, state) {
      const index = this._find(kind, state.values, this._view(state.values));
      if (index === undefined) throw new Refusal(["The report has no answer for these settings."]);
      const answer = this.report.answers[index];
      // one answer has all numbers of workers, whichever is looked at
      return { ...answer, settings: { ...answer.settings, workers: Number(state.values.workers) } };
    }

    async export(name, state) {
      const view = this._view(state.values) || {};
      return this.report.texts[this._find(name, state.values, view.exports)];
    }

    exports(state) {
      const view = this._view(state.values) || {};
      return Object.keys(view.exports || {}).filter(
        (name) => this._find(name, state.values, view.exports) !== undefined,
      );
    }

    /** Tell whether there are answers of this kind. */
    has(kind, state) {
      return this._find(kind, state.values, this._view(state.values)) !== undefined;
    }
  }

  Paleo.Refusal = Refusal;
  Paleo.Server = Server;
  Paleo.Report = Report;
})();
