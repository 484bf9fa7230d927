/**
 * What a cluster is made of, from `scripts/install-kubernetes`: which directory each part lies in, or why
 * there is none.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const SCRIPT = fileURLToPath(new URL('../../../scripts/install-kubernetes', import.meta.url));

export type Part = 'debian' | 'kubernetes' | 'containerd' | 'gvisor' | 'agent-sandbox' | 'helm';

export interface Parts {
  /** The directory of a part. Throws the reason if it cannot be had here. */
  directory(part: Part): string;
  whyNot(part: Part): string | undefined;
}

/**
 * Of the parts that are needed. The first time this builds for some ten minutes, and says so on standard
 * error.
 */
export async function installParts(needed: Part[]): Promise<Parts> {
  const child = spawn(SCRIPT, needed, { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (part: Buffer) => (out += part.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (code !== 0) throw new Error(`${SCRIPT} failed with exit code ${code}`);
  const found = new Map<string, { directory?: string; reason?: string }>();
  for (const line of out.split('\n')) {
    const match = /^([\w-]+)([=!])(.*)$/.exec(line);
    if (match) found.set(match[1]!, match[2] === '=' ? { directory: match[3] } : { reason: match[3] });
  }
  const whyNot = (part: Part) => {
    const { directory, reason } = found.get(part) ?? {};
    return directory === undefined ? `${part}: ${reason ?? 'the script did not say'}` : undefined;
  };
  return {
    whyNot,
    directory(part) {
      const reason = whyNot(part);
      if (reason !== undefined) throw new Error(reason);
      return found.get(part)!.directory!;
    },
  };
}
