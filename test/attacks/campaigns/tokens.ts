/**
 * Tokens and signatures that are nearly right: cut, changed in a bit or in case, with something added, of
 * another sandbox, port, path, user or project, or revoked. None opens anything.
 */
import { createHash } from 'node:crypto';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Target, Tenant } from '../support/target.ts';

const HASH = 'a'.repeat(64);
const ENVD = '49983';

interface Held {
  id: string;
  envd: string;
  /** Of the private port 3000. */
  preview: string;
  /** Path and query of an upload link. */
  upload: URL;
}

export const tokens: Campaign = {
  name: 'tokens',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const [mine, other] = [await held(target.alice), await held(target.bob)];
    // What was given out before it was revoked is as good as wrong.
    const revoked = await held(target.alice);
    await target.alice.call('POST', '/v1/projects/alice/revoke-tokens');
    const fresh = await held(target.alice);
    return {
      async next() {
        const victim = random.pick([mine, other, revoked, fresh]);
        const right = victim === other || victim === fresh;
        const token = random.pick([
          // Its own token is wrong only where it was revoked.
          ...(right ? [] : [victim.envd]),
          ...[mine, other, revoked, fresh].filter((one) => one !== victim).map(({ envd }) => envd),
          changed(victim.envd, random),
          changed(victim.preview, random),
          victim.preview,
          '',
        ]);
        const [what, status] = await random.pick([withToken, withSignature, withPreview, withUpload])(
          target,
          victim,
          token,
          random,
        );
        if (status < 400) throw new Error(`${what} was answered with ${status}`);
        if (status >= 500 && status !== 502) throw new Error(`${what} failed with ${status}`);
        return `${what} → ${status}`;
      },
    };
  },
};

async function held(tenant: Tenant): Promise<Held> {
  const made = await tenant.call('POST', '/sandboxes', { body: { templateID: 'base', timeout: 3600 } });
  const { sandboxID: id, envdAccessToken: envd } = made.json as {
    sandboxID: string;
    envdAccessToken: string;
  };
  const port = await tenant.call('PUT', `/v1/sandboxes/sbx_${id}/ports/3000`, {
    body: { visibility: 'private' },
  });
  const link = await tenant.call('GET', `/templates/mine/files/${HASH}`);
  return {
    id,
    envd,
    preview: (port.json as { token: string }).token,
    upload: new URL((link.json as { url: string }).url),
  };
}

/** The same text with something wrong in it, never the same. */
function changed(text: string, random: Random): string {
  const at = random.below(text.length);
  const other = text[at] === 'a' ? 'b' : 'a';
  const made = random.pick([
    text.slice(0, at),
    text.slice(0, at) + other + text.slice(at + 1),
    `${text}${random.pick(['a', '=', ' a', '%00'])}`,
    text.toUpperCase(),
    text.replace(/_.*/, '_'),
    `${text.slice(0, at)}${text.slice(at + 1)}`,
    text.split('').toReversed().join(''),
  ]);
  return made === text ? `${text}a` : made;
}

type Attempt = (
  target: Target,
  victim: Held,
  token: string,
  random: Random,
) => Promise<[what: string, status: number]>;

const inside = ({ id }: Held) => ({ 'e2b-sandbox-id': id, 'e2b-sandbox-port': ENVD });

const withToken: Attempt = async ({ stranger }, victim, token) => {
  const { status } = await stranger('GET', '/envs', {
    headers: { ...inside(victim), 'x-access-token': token },
  });
  return [`an access token "${token}" for ${victim.id}`, status];
};

const withSignature: Attempt = async ({ stranger }, victim, token, random) => {
  const [path, operation, user] = [
    random.pick(['/etc/passwd', '/tmp/x']),
    random.pick(['read', 'write']),
    random.pick(['root', 'user', '']),
  ];
  const signature = `v1_${createHash('sha256').update(`${path}:${operation}:${user}:${token}`).digest('base64').replace(/=+$/, '')}`;
  const asked = random.pick([signature, changed(signature, random), signature.slice(3)]);
  const query = new URLSearchParams({ path, ...(user !== '' && { username: user }), signature: asked });
  const { status } = await stranger(operation === 'read' ? 'GET' : 'POST', `/files?${query.toString()}`, {
    // Without the name of a sandbox it is looked for, and a token of another would be found.
    ...(token.startsWith(victim.id) && random.chance(0.3) ? {} : { headers: inside(victim) }),
    ...(operation === 'write' && { body: 'x' }),
  });
  return [`a signature with "${token}" for ${victim.id}`, status];
};

const withPreview: Attempt = async ({ stranger }, victim, token, random) => {
  const query = random.chance(0.5) ? `?cay_token=${encodeURIComponent(token)}` : '';
  const headers = query === '' ? { 'x-cay-preview-token': token } : undefined;
  // Its own token fits its own port, where nobody listens: that is not for others to know.
  const port = token === victim.preview ? '3001' : '3000';
  const { status } = await stranger('GET', `/preview/sbx_${victim.id}/${port}/${query}`, {
    ...(headers && { headers }),
  });
  return [`a preview token "${token}" for port ${port} of ${victim.id}`, status === 502 ? 200 : status];
};

const withUpload: Attempt = async ({ stranger }, victim, _token, random) => {
  const query = new URLSearchParams(victim.upload.search);
  const name = random.pick(['project', 'expires', 'signature']);
  query.set(
    name,
    name === 'expires'
      ? String(Number(query.get(name)) + 1 + random.below(1e9))
      : changed(query.get(name)!, random),
  );
  const { status } = await stranger('PUT', `${victim.upload.pathname}?${query.toString()}`, {
    body: 'no archive',
  });
  // A link that is allowed is refused later, since this is no archive. Too many wrong ones are answered 429.
  return [`an upload link with another ${name}`, status === 401 || status === 429 ? status : 200];
};
