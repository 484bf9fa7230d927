/** Reads the XML that S3 servers answer with: elements and text. Attributes and declarations are skipped. */

export interface XmlElement {
  readonly name: string;
  readonly text: string;
  readonly children: readonly XmlElement[];
}

const MOST_ELEMENTS = 100_000;
const DEEPEST = 16;
/** What is no element, and how it ends. */
const OTHERS = [
  ['<!--', '-->'],
  ['<?', '?>'],
] as const;
const CDATA = ['<![CDATA[', ']]>'] as const;
const NAME = /[A-Za-z_][\w:.-]*/y;
const ENTITIES: Record<string, string> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

interface Open {
  name: string;
  text: string;
  children: XmlElement[];
}

/**
 * The one element of a document, or `undefined` for what is no XML, or too much of it. The server that sends
 * it may be a tenant's: every character is looked at a bounded number of times, which one regular expression
 * for all would not do.
 */
export function parseXml(text: string): XmlElement | undefined {
  const top: Open = { name: '', text: '', children: [] };
  const stack = [top];
  let count = 0;
  let at = 0;
  while (at < text.length) {
    const open = stack.at(-1)!;
    const between = within(text, at);
    if (between === undefined) return undefined;
    const { kind, inner, end } = between;
    at = end;
    if (kind === 'text') open.text += unescaped(inner);
    else if (kind === 'cdata') open.text += inner;
    if (kind !== 'tag') continue;
    const isEnd = inner.startsWith('/');
    NAME.lastIndex = isEnd ? 1 : 0;
    const name = NAME.exec(inner)?.[0];
    if (name === undefined) return undefined;
    if (isEnd) {
      if (stack.length < 2 || open.name !== local(name)) return undefined;
      stack.pop();
    } else {
      const element: Open = { name: local(name), text: '', children: [] };
      if (++count > MOST_ELEMENTS) return undefined;
      open.children.push(element);
      if (!inner.endsWith('/')) stack.push(element);
      if (stack.length > DEEPEST) return undefined;
    }
  }
  return stack.length === 1 && top.children.length === 1 ? top.children[0] : undefined;
}

interface Piece {
  kind: 'text' | 'cdata' | 'tag' | 'other';
  inner: string;
  /** Behind it. */
  end: number;
}

/** What begins there, or `undefined` if it does not end. */
function within(text: string, at: number): Piece | undefined {
  if (text[at] !== '<') {
    const next = text.indexOf('<', at);
    const end = next < 0 ? text.length : next;
    return { kind: 'text', inner: text.slice(at, end), end };
  }
  const upTo = (kind: Piece['kind'], begin: string, close: string): Piece | undefined => {
    const end = text.indexOf(close, at + begin.length);
    return end < 0 ? undefined : { kind, inner: text.slice(at + begin.length, end), end: end + close.length };
  };
  for (const [begin, close] of OTHERS) if (text.startsWith(begin, at)) return upTo('other', begin, close);
  if (text.startsWith(CDATA[0], at)) return upTo('cdata', ...CDATA);
  return upTo('tag', '<', '>');
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
