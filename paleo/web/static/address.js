/* What is looked at, as an address: settings in the query, an uploaded net in the fragment. */
"use strict";

(function () {
  /** The tabs of the results; the first is what an address without `view` shows. */
  const VIEWS = ["workers", "layers", "memory", "plans", "nets", "infer"];
  /** More characters than this do not pass through mail and chat. */
  const LONGEST = 100000;
  /** A net of more characters is not unpacked from a link. */
  const LARGEST = 8000000;

  /**
   * An uploaded net: a net file's text, and the file with the options that it was read from with.
   * @typedef {{file: string, text: string, options: string}} Net
   */

  /**
   * What is looked at.
   * @typedef {Object} View
   * @property {Object<string, string>} values every setting, as text
   * @property {string} view one of VIEWS
   * @property {?Net} net an uploaded net
   * @property {string} fragment what stands after "#", without it
   */

  /** Return the defaults of all settings as texts. @param {Object<string, *>} defaults */
  function texts(defaults) {
    return Object.fromEntries(
      Object.entries(defaults).map(([key, value]) => [key, Paleo.text(value)]),
    );
  }

  /** What a cluster brings, so that one that is named without a cluster stands for none. */
  const OF_CLUSTER = ["device", "network"];

  /**
   * Return what a query says, with the defaults for what it leaves out.
   * @param {string} query
   * @param {Object<string, string>} defaults
   * @returns {{values: Object<string, string>, view: string, messages: string[]}}
   */
  function read(query, defaults) {
    const values = { ...defaults };
    const messages = [];
    const given = new URLSearchParams(query);
    if (!given.has("cluster") && OF_CLUSTER.some((key) => given.get(key))) values.cluster = "";
    let view = VIEWS[0];
    for (const [key, value] of given) {
      if (key === "view") {
        if (VIEWS.includes(value)) view = value;
        else messages.push(`The link asks for a view "${value}", which there is not.`);
      } else if (Object.hasOwn(defaults, key)) values[key] = value;
      else messages.push(`The link has a setting "${key}", which there is not. It is left out.`);
    }
    return { values, view, messages };
  }

  /** Return the settings that differ from the defaults as a query without "?". */
  function query(values, defaults, view) {
    const parts = new URLSearchParams();
    const differs = (key) => values[key] !== defaults[key];
    const implied = values.cluster ? OF_CLUSTER : OF_CLUSTER.some(differs) ? ["cluster"] : [];
    for (const [key, value] of Object.entries(values)) {
      if (differs(key) && !implied.includes(key)) parts.append(key, value);
    }
    if (view && view !== VIEWS[0]) parts.append("view", view);
    return parts.toString();
  }

  /** Return an address relative to the page. */
  function address(values, defaults, view, fragment) {
    const found = query(values, defaults, view);
    return location.pathname + (found ? `?${found}` : "") + (fragment ? `#${fragment}` : "");
  }

  async function through(bytes, stream) {
    const piped = new Blob([bytes]).stream().pipeThrough(stream);
    const parts = [];
    let size = 0;
    const reader = piped.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > LARGEST) {
        await reader.cancel();
        throw new Error("too large");
      }
      parts.push(value);
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  }

  function toBase64(bytes) {
    let binary = "";
    for (let start = 0; start < bytes.length; start += 32768) {
      binary += String.fromCharCode(...bytes.subarray(start, start + 32768));
    }
    return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  function fromBase64(text) {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  }

  /**
   * Return the fragment that carries a net; only its file's name if it is too long.
   * @param {Net} net
   */
  async function pack(net) {
    const bytes = new TextEncoder().encode(JSON.stringify(net));
    if (bytes.length <= LARGEST) {
      const packed = toBase64(await through(bytes, new CompressionStream("deflate-raw")));
      if (packed.length <= LONGEST) return `net=${packed}`;
    }
    return `file=${encodeURIComponent(net.file)}`;
  }

  /**
   * Return the net of a fragment, or the message why there is none.
   * @param {string} fragment with or without "#"
   * @returns {Promise<{net: ?Net, message: string}>}
   */
  async function unpack(fragment) {
    const text = fragment.replace(/^#/, "");
    if (text.startsWith("file=")) return { net: null, message: askFor(text.slice(5)) };
    if (!text.startsWith("net=")) return { net: null, message: "" };
    try {
      const packed = fromBase64(text.slice(4));
      const bytes = await through(packed, new DecompressionStream("deflate-raw"));
      const found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      const net = { file: found.file, text: found.text, options: found.options ?? "" };
      if (Object.values(net).every((part) => typeof part === "string")) return { net, message: "" };
    } catch {
      // a link that was cut or changed
    }
    return { net: null, message: "The net in this link cannot be read: it may have been cut." };
  }

  function askFor(name) {
    let file = name;
    try {
      file = decodeURIComponent(name);
    } catch {
      // then as it stands
    }
    return `This link is of a net too large for a link: upload ${file} to see it.`;
  }

  Paleo.address = { VIEWS, texts, read, query, address, pack, unpack };
})();
