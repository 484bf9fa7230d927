import type { Assault } from './assault.ts';
import { BY_SOCKETS } from './by-sockets.ts';
import { BY_STRANGERS } from './by-strangers.ts';
import { BY_TENANTS } from './by-tenants.ts';
import { FROM_INSIDE } from './from-inside.ts';

/** All that a neighbour's figures are taken under. */
export const ASSAULTS: readonly Assault[] = [...BY_TENANTS, ...BY_STRANGERS, ...BY_SOCKETS, ...FROM_INSIDE];
