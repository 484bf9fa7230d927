import type { NetworkRuleObject } from '@cay/sdk/protocol';

/** What of a request conditions are about. Header names are in lower case. */
export interface RequestHead {
  readonly method: string;
  /** As it was sent, without its query. */
  readonly path: string;
  readonly headers: ReadonlyMap<string, string>;
}

/** The conditions of one rule. Two readings, because what is ambiguous must not slip through either list. */
export interface HttpConditions {
  /** Whether every reading of the request is covered. For rules that allow. */
  covers(head: RequestHead): boolean;
  /** Whether some reading of the request is covered. For rules that deny. */
  touches(head: RequestHead): boolean;
}

const OVERRIDES = ['x-http-method-override', 'x-http-method', 'x-method-override'];

export function httpConditions(
  rule: Pick<NetworkRuleObject, 'methods' | 'paths' | 'headers'>,
): HttpConditions | undefined {
  const methods = rule.methods && new Set(rule.methods.map((method) => method.toUpperCase()));
  if (methods?.has('GET')) methods.add('HEAD');
  const paths = rule.paths?.map(pathPattern);
  const headers = Object.entries(rule.headers ?? {}).map(
    ([name, glob]) => [name.toLowerCase(), glob] as const,
  );
  if (!methods && !paths && headers.length === 0) return undefined;
  const inPath = (path: string) => paths!.some((pattern) => isCovered(pattern, path));
  const rest = (head: RequestHead) =>
    headers.every(([name, glob]) => matchesGlob(glob, head.headers.get(name) ?? '\0'));
  return {
    covers(head) {
      if (methods && !methodsOf(head).every((method) => methods.has(method))) return false;
      const readings = paths && pathReadings(head.path);
      if (paths && (readings === undefined || !readings.every(inPath))) return false;
      return rest(head);
    },
    touches(head) {
      if (methods && !methodsOf(head).some((method) => methods.has(method))) return false;
      const readings = paths && pathReadings(head.path);
      if (readings && !readings.some(inPath)) return false;
      return rest(head);
    },
  };
}

function methodsOf({ method, headers }: RequestHead): string[] {
  const overrides = OVERRIDES.flatMap((name) => headers.get(name)?.split(',') ?? []);
  return [method, ...overrides].map((text) => text.trim().toUpperCase());
}

/**
 * The paths that servers may take it for: as it is sent, decoded, and with repeated slashes as one. Nothing
 * if servers would disagree about it: dot segments, encoded or not, and encodings of encodings.
 */
export function pathReadings(path: string): string[] | undefined {
  let decoded: string;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    return undefined;
  }
  if (decoded !== path && /%[0-9a-f]{2}/i.test(decoded)) return undefined;
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x1f\x7f\\]/.test(decoded)) return undefined;
  if (decoded.split('/').some((segment) => /^\.{1,2}(;.*)?$/.test(segment))) return undefined;
  return [...new Set([path, decoded, decoded.replace(/\/{2,}/g, '/')])];
}

/** Texts alone, because a policy may have very many: what is above the first wildcard, and all of it. */
interface PathPattern {
  readonly head: string;
  /** Absent without wildcards. */
  readonly glob?: string;
}

function pathPattern(path: string): PathPattern {
  const glob = path.replace(/\/+(\*\*)?$/, '');
  const wild = glob.indexOf('*');
  return wild === -1 ? { head: glob } : { head: glob.slice(0, wild), glob };
}

/** Whether a path is the pattern's, or below it. */
function isCovered({ head, glob }: PathPattern, path: string): boolean {
  if (!path.startsWith(head)) return false;
  if (glob === undefined) return path.length === head.length || path[head.length] === '/';
  const segments = glob.split('/');
  const own = path.split('/');
  return own.length >= segments.length && segments.every((segment, at) => matchesGlob(segment, own[at]!));
}

/** A glob in which `*` is the one wildcard. It takes steps of the lengths' product, whatever is in it. */
function matchesGlob(glob: string, text: string): boolean {
  let [at, inGlob, star, mark] = [0, 0, -1, 0];
  while (at < text.length) {
    if (glob[inGlob] === '*') [star, mark] = [inGlob++, at];
    else if (glob[inGlob] === text[at]) {
      inGlob++;
      at++;
    } else if (star !== -1) [inGlob, at] = [star + 1, ++mark];
    else return false;
  }
  while (glob[inGlob] === '*') inGlob++;
  return inGlob === glob.length;
}
