// Part of the prelude.
#pragma once
