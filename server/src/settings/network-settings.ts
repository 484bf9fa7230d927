import { parseUpstreamProxy, type UpstreamProxy } from '../egress/carrier/upstream-proxy.ts';
import { parsePolicy } from '../egress/policy/parse-policy.ts';
import { UnitError } from '../lib/units.ts';
import { parsed } from './kinds.ts';
import { setting } from './setting.ts';

/** What sandboxes reach outside. */
export const networkSettings = {
  network: setting(parsed(parsePolicy), {
    group: 'network',
    value: 'policy',
    help: 'what sandboxes reach that ask for nothing else: none, packages, public, ask, or a policy in JSON',
    default: 'packages',
  }),
  maxNetwork: setting(parsed(parsePolicy), {
    group: 'network',
    value: 'policy',
    help: 'the most that any sandbox reaches, of the same',
    default: 'public',
  }),
  egressProxy: setting(parsed(proxyIn), {
    group: 'network',
    value: 'url',
    help: 'the proxy that connections of sandboxes go out by, http:// or socks5://; give it in the variable, where nobody else sees it',
    secret: true,
  }),
};

/** It may have a password in it: no message repeats it. */
function proxyIn(text: string): UpstreamProxy {
  try {
    return parseUpstreamProxy(text);
  } catch {
    throw new UnitError('must be http://host:port or socks5://host:port');
  }
}
