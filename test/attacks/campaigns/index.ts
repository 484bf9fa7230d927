import type { Campaign } from '../support/campaign.ts';
import { allowances } from './allowances.ts';
import { api } from './api.ts';
import { applications } from './applications.ts';
import { archives } from './archives.ts';
import { builds } from './builds.ts';
import { egress } from './egress.ts';
import { http2 } from './http2.ts';
import { images } from './images.ts';
import { lyingGuest } from './lying-guest.ts';
import { mcp } from './mcp.ts';
import { moves } from './moves.ts';
import { ports } from './ports.ts';
import { protobuf } from './protobuf.ts';
import { requests } from './requests.ts';
import { resources } from './resources.ts';
import { tokens } from './tokens.ts';
import { tools } from './tools.ts';

/** All campaigns of `npm run attacks`. */
export const CAMPAIGNS: readonly Campaign[] = [
  allowances,
  api,
  applications,
  archives,
  builds,
  egress,
  http2,
  images,
  lyingGuest,
  mcp,
  moves,
  ports,
  protobuf,
  requests,
  resources,
  tokens,
  tools,
];
