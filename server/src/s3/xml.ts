/** Reads the XML that S3 servers answer with: elements and text. Attributes and declarations are skipped. */

export interface XmlElement {
  readonly name: string;
  readonly text: string;
  readonly children: readonly XmlElement[];
}

const MOST_ELEMENTS = 100_000;
const DEEPEST = 16;
const TOKEN =
  /<!--[^]*?-->|<\?[^]*?\?>|<!\[CDATA\[([^]*?)\]\]>|<(\/?)([A-Za-z_][\w:.-]*)[^>]*?(\/?)>|([^<]+)/gy;
const ENTITIES: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

interface Open {
  name: string;
  text: string;
  children: XmlElement[];
}

/** The one element of a document, or `undefined` for what is no XML, or too much of it. */
export function parseXml(text: string): XmlElement | undefined {
  const top: Open = { name: '', text: '', children: [] };
  const stack = [top];
  let count = 0;
  let at = 0;
  TOKEN.lastIndex = 0;
  for (let found = TOKEN.exec(text); found !== null; found = TOKEN.exec(text)) {
    at = TOKEN.lastIndex;
    const [, cdata, isEnd, name, isEmpty, plain] = found;
    const open = stack.at(-1)!;
    if (plain !== undefined) open.text += unescaped(plain);
    else if (cdata !== undefined) open.text += cdata;
    else if (name !== undefined && isEnd === '/') {
      if (stack.length < 2 || open.name !== local(name)) return undefined;
      stack.pop();
    } else if (name !== undefined) {
      const element: Open = { name: local(name), text: '', children: [] };
      if (++count > MOST_ELEMENTS) return undefined;
      open.children.push(element);
      if (isEmpty !== '/') stack.push(element);
      if (stack.length > DEEPEST) return undefined;
    }
  }
  return at === text.length && stack.length === 1 && top.children.length === 1 ? top.children[0] : undefined;
}

/** The text of the first child of that name. */
export function textOf(element: XmlElement | undefined, name: string): string | undefined {
  return element?.children.find((child) => child.name === name)?.text;
}

export function childrenOf(element: XmlElement | undefined, name: string): XmlElement[] {
  return element?.children.filter((child) => child.name === name) ?? [];
}

export function escaped(text: string): string {
  return text.replace(/[<>&"'\r\n]/g, (c) => `&#${c.charCodeAt(0)};`);
}

function local(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}

function unescaped(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#x([0-9a-fA-F]{1,6})|(\w{1,8}));/g, (whole, decimal, hex, name) => {
    if (name !== undefined) return ENTITIES[name as string] ?? whole;
    const code = decimal === undefined ? Number.parseInt(hex as string, 16) : Number(decimal);
    return code <= 0x10_ffff ? String.fromCodePoint(code) : whole;
  });
}
