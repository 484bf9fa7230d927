/** What a registry asks for: the `WWW-Authenticate` header of a 401. */

export interface Challenge {
  scheme: 'bearer' | 'basic';
  /** In lower case. */
  parameters: Record<string, string>;
}

const LONGEST = 8192;
const SCHEME = /(?:^|,)\s*(bearer|basic)(?:\s+|$)/gi;
const PARAMETER = /\s*([a-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]*))\s*(?:,|$)/giy;

/** The first that is understood, bearer before basic. */
export function parseChallenge(header: string | undefined): Challenge | undefined {
  if (header === undefined || header.length > LONGEST) return undefined;
  const found: Challenge[] = [];
  for (const match of header.matchAll(SCHEME)) {
    const parameters: Record<string, string> = Object.create(null) as Record<string, string>;
    PARAMETER.lastIndex = match.index + match[0].length;
    for (let one = PARAMETER.exec(header); one !== null; one = PARAMETER.exec(header)) {
      parameters[one[1]!.toLowerCase()] ??= (one[2] ?? one[3] ?? '').replaceAll(/\\(.)/g, '$1');
      if (PARAMETER.lastIndex >= header.length) break;
    }
    found.push({ scheme: match[1]!.toLowerCase() as Challenge['scheme'], parameters });
  }
  return found.find(({ scheme }) => scheme === 'bearer') ?? found[0];
}
